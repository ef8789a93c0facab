# Makefile - builds ./ditto, its tests and tools. `make help` lists the targets.
# CUDA=0 builds the CPU table only; by default CUDA objects are built where nvcc is found.
# CUDA_ARCH picks the GPUs (80 89 90 100 120, several are fine): by default this machine's; without one sm_90a and
# sm_80 code and compute_80 PTX, which newer cards compile for themselves.
# ARCH picks the CPU (native by default; x86-64-v3 for a folder that travels). V=1 shows the commands.
# LIBAV=0 leaves reading video and sound out, LIBAV=1 demands it; by default it is built in where pkg-config finds it.
# Easy to get wrong: `make deps check` runs both goals at once unless objects wait for deps: they do (FIRST).

ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif

ifeq ($(origin CC),default)
CC := cc
endif
NVCC    ?= $(shell command -v nvcc 2>/dev/null || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
CUDA    ?= $(if $(NVCC),1,0)
ARCH    ?= native
VARIANT ?= release
OPT     ?= -O3
OPENMP  ?= -fopenmp
PREFIX  ?= /usr/local
Q       := $(if $(V),,@)

# Debian package: pkg-config name. The first list is what `make deps` installs.
DEB_USER := build-essential pkg-config libcjson-dev libstb-dev libpcre2-dev libutf8proc-dev libopenblas-dev \
            libavcodec-dev libavformat-dev libswscale-dev libswresample-dev libavutil-dev libcmocka-dev \
            libjpeg-dev libexif-dev
# Programs that tests hold ditto against; without them those parts are skipped by name.
DEB_TEST := ffmpeg groff-base man-db zsh fish
DEB_DEV  := clang libclang-rt-dev clang-format python3-venv $(DEB_TEST)
NEEDED   := libcjson-dev:libcjson libstb-dev:stb libutf8proc-dev:libutf8proc \
            libopenblas-dev:openblas libcmocka-dev:cmocka libjpeg-dev:libjpeg libexif-dev:libexif
PKGS     := libcjson stb libutf8proc openblas libjpeg libexif
AVPKGS   := libavformat libavcodec libswscale libswresample libavutil

COMMA   := ,
SPACE   := $(subst ,, )
# A folder that travels carries no libstdc++: cuDNN there wants that machine's own, perhaps newer.
LIBCXX  := $(if $(filter portable-objects,$(VARIANT)),-l:libstdc++.a,-lstdc++)
ifeq ($(CUDA),1)
CUDA_HOME ?= $(patsubst %/bin/,%,$(dir $(realpath $(NVCC))))
CU      := $(sort $(wildcard src/*.cu src/*/*.cu))
CUFLAGS := -DHAVE_CUDA -isystem $(CUDA_HOME)/include
CULIBS  := -L$(CUDA_HOME)/lib64 -lcudart_static -ldl -lrt $(if $(CU),$(LIBCXX))
ifndef CUDA_ARCH
CUDA_ARCH := $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | \
               grep -x '[0-9]*\.[0-9]' | tr -d . | sort -u)
endif
CUDA_CODE := $(foreach a,$(patsubst 90,90a,$(or $(CUDA_ARCH),90 80)),-gencode arch=compute_$a,code=sm_$a) \
             $(if $(CUDA_ARCH),,-gencode arch=compute_80,code=compute_80)
# The same as sm_90a,sm_80,compute_80: for the line that says what this build has no code for (core/device_code.h).
CUFLAGS   += -DDEVICE_CODE=$(subst $(SPACE),$(COMMA),$(patsubst code=%,%,$(filter code=%,$(subst $(COMMA), ,$(CUDA_CODE)))))
endif
BUILD   := build/$(VARIANT)
WARN    := -Wall -Wextra -Werror -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
# -iquote, not -I: src/sched.h must not stand in for the system's <sched.h>.
# Contraction off: every fma that the reference contains is written as fmaf (README, "Rounding").
CFLAGS  := -std=c11 -D_GNU_SOURCE $(OPT) -g -march=$(ARCH) -ffp-contract=off $(OPENMP) $(WARN) \
           $(CUFLAGS) -iquote src $(EXTRA)
NVFLAGS := -O3 -g -std=c++17 $(CUDA_CODE) --fmad=false -DHAVE_CUDA -Xcompiler -iquote,src,-Wall
# Asked for in recipes only, so that `make deps` works where nothing is installed yet.
CPPDEPS  = $(shell pkg-config --cflags $(PKGS) | sed 's/-I/-isystem /g')
LDLIBS   = $(shell pkg-config --libs $(PKGS)) $(CULIBS) -lm -lpthread -ldl $(EXTRALIBS)
# Not empty when this build knows libav's headers: $(BUILD)/libav says so, and is asked in recipes too. Nothing of it is linked.
AVFOUND  = $(filter 1,$(file <$(BUILD)/libav))
TESTLIBS := -lcmocka
ifeq ($(VARIANT),portable-objects)
LDLIBS  += -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/lib:$$ORIGIN/../lib' # old tags: libraries' own needs are found too
endif

SRC     := $(sort $(wildcard src/*.c src/*/*.c))
OBJ     := $(SRC:%.c=$(BUILD)/%.o) $(CU:%.cu=$(BUILD)/%.cu.o)
LIBOBJ  := $(filter-out $(BUILD)/src/main.o,$(OBJ))
TESTS   := $(sort $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_*.c tests/checkop.c tests/score_demo.c))) $(BUILD)/tests/ditto_clips
FUZZERS := $(sort $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/fuzz_*.c)))
FUZZ_SECONDS ?= 60
GPU_RESULTS ?= tests/gpu-results
# Goals that must end before anything is compiled.
FIRST   := $(filter deps clean,$(MAKECMDGOALS))

all: ditto ## build ./ditto (the default)

ditto: $(BUILD)/ditto
	$(Q)cp -f $< $@

$(BUILD)/ditto: $(OBJ)
	@echo "  LD  $@ ($(if $(filter 1,$(CUDA)),with CUDA,CPU only: $(if $(NVCC),CUDA=0,nvcc not found))$(if $(AVFOUND),,; no libav))"
	$(Q)$(CC) $(CFLAGS) -o $@ $(OBJ) $(LDLIBS)

$(BUILD)/%.o: %.c $(BUILD)/flags | $(BUILD)/packages
	@mkdir -p $(@D)
	@echo "  CC  $<"
	$(Q)$(CC) $(CFLAGS) $(CPPDEPS) -MMD -MP -c -o $@ $<

# The only files that see libav. Another answer than last time (packages installed since) makes them anew.
AVOBJ   := $(filter $(BUILD)/src/media/av_%.o $(BUILD)/src/media/mp4.o,$(OBJ))
$(AVOBJ): $(BUILD)/libav
$(AVOBJ): CPPDEPS += $(if $(AVFOUND),-DHAVE_LIBAV $(shell pkg-config --cflags $(AVPKGS) | sed 's/-I/-isystem /g'))
$(BUILD)/libav: FORCE | $(BUILD)/packages
	@pkg-config --exists $(AVPKGS) 'libavutil >= 57.24' && there=1 || there=0; found=$(or $(LIBAV),$$there); \
	if [ "$$found$$there" = 10 ]; then echo "LIBAV=1, but libav is missing or older than 5.1: run make deps" >&2; exit 1; fi; \
	[ "$$(cat $@ 2>/dev/null)" = "$$found" ] || echo "$$found" >$@

$(BUILD)/%.cu.o: %.cu $(BUILD)/flags | $(BUILD)/packages
	@mkdir -p $(@D)
	@echo "  NVCC $<"
	$(Q)$(NVCC) $(NVFLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

# checkop: the harness, its model and the case generators; it needs the ops alone.
CHECKOBJ := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard tests/check*.c))) \
            $(filter $(BUILD)/src/ops.o $(BUILD)/src/opcost.o $(BUILD)/src/core/% $(BUILD)/src/kernels/%,$(LIBOBJ))
$(BUILD)/tests/checkop: $(CHECKOBJ)
	@echo "  LD  $@"
	$(Q)$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS)

# The judges of the demo pictures and clips, shared by their own tests and the program that draws and scores.
$(BUILD)/tests/test_score $(BUILD)/tests/test_score_clip $(BUILD)/tests/score_demo: $(BUILD)/tests/score.o
$(BUILD)/tests/test_score_clip $(BUILD)/tests/score_demo: $(BUILD)/tests/score_clip.o

# Programs in which a model of clips without weights stands in front of the list of models: a test, and ditto itself.
$(BUILD)/tests/test_clip $(BUILD)/tests/ditto_clips: TESTLIBS += -Wl,--wrap=model_find
$(BUILD)/tests/test_clip: $(BUILD)/tests/clip_model.o
$(BUILD)/tests/ditto_clips: $(BUILD)/tests/clip_model.o $(OBJ)
	@echo "  LD  $@"
	$(Q)$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS) $(TESTLIBS)

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(LIBOBJ)
	@echo "  LD  $@"
	$(Q)$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS) $(TESTLIBS)

# One clear line for a missing package, instead of a missing header in some file.
$(BUILD)/packages: | $(FIRST)
	@mkdir -p $(@D)
	@command -v pkg-config >/dev/null || { echo "pkg-config is missing: run make deps" >&2; exit 1; }
	@missing=; for p in $(NEEDED); do pkg-config --exists $${p#*:} || missing="$$missing $${p%%:*}"; done; \
	if [ -n "$$missing" ]; then echo "missing packages:$$missing: run make deps" >&2; exit 1; fi
	@touch $@

# Objects of other flags (CUDA=0 after CUDA=1, another ARCH) are made anew.
FLAGS_NOW := $(CC) $(CFLAGS) $(NVFLAGS)
ifneq ($(strip $(file <$(BUILD)/flags)),$(strip $(FLAGS_NOW)))
$(BUILD)/flags: FORCE
endif
$(BUILD)/flags:
	@mkdir -p $(@D)
	@printf '%s\n' '$(FLAGS_NOW)' >$@
FORCE:

.PRECIOUS: $(BUILD)/%.o
-include $(OBJ:.o=.d) $(wildcard $(BUILD)/tests/*.d)

deps: ## install the distribution packages (sudo when not root)
	@if dpkg-query -W -f '$${db:Status-Abbrev} $${Package}\n' $(DEB_USER) 2>/dev/null | grep -c '^ii' | \
	  grep -qx $(words $(DEB_USER)); then echo "deps: all packages are installed"; exit 0; fi; \
	command -v apt-get >/dev/null || { echo "deps: needs apt-get; the packages are: $(DEB_USER)" >&2; exit 1; }; \
	sudo=; if [ "$$(id -u)" != 0 ]; then sudo=sudo; fi; \
	$$sudo env DEBIAN_FRONTEND=noninteractive apt-get update && \
	$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $(DEB_USER)

deps-list: ## print the packages: for users, then for development
	@echo $(DEB_USER)
	@echo $(DEB_DEV)

deps-test: ## install the programs that some tests compare with (ffmpeg, shells, groff)
	@sudo=; if [ "$$(id -u)" != 0 ]; then sudo=sudo; fi; \
	for p in ffmpeg groff man zsh fish; do command -v $$p >/dev/null || missing=1; done; [ -z "$$missing" ] || { \
	$$sudo env DEBIAN_FRONTEND=noninteractive apt-get update && \
	$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $(DEB_TEST); }

PROMPT ?= on a gray background: a big cyan circle in the top right and a large red disc in the top left
CLIP ?= a red circle moves right
demo: ditto ## render a picture or a clip with each checkpoint that ships
	@mkdir -p out
	@./ditto generate -m weights/demo-flux -p "$(PROMPT)" \
	  -o out/demo.png -y --seed 1 -W 128 -H 128
	@./ditto generate -m weights/demo-zimage -p "$(PROMPT)" \
	  -o out/demo-zimage.png -y --seed 1 -W 128 -H 128
	@./ditto generate -m weights/demo-sana-video -p "$(CLIP)" \
	  -o out/demo-sana-video.$(if $(AVFOUND),mp4,%02d.png) -y --seed 1

score-demo: ditto $(BUILD)/tests/score_demo ## draw and score all 100 held-out prompts of the demo checkpoints
	@$(BUILD)/tests/score_demo
	@$(BUILD)/tests/score_demo -m weights/demo-zimage
	@$(BUILD)/tests/score_demo --clips

check: ditto $(TESTS) lint-objects ## all tests and lint; the last line is "N passed, N failed"
	@BUILD=$(BUILD) scripts/check.sh

check-full: ditto $(TESTS) lint-objects ## the same, with every slow test and all demo prompts
	@BUILD=$(BUILD) CHECK_FULL=1 scripts/check.sh

ASAN := VARIANT=asan CUDA=0 OPT=-O1 EXTRA="-fsanitize=address,undefined -fno-sanitize-recover=undefined \
        -fno-omit-frame-pointer"
asan: ## the tests under AddressSanitizer and UBSan
	$(Q)$(MAKE) --no-print-directory $(ASAN) asan-check

asan-check: $(BUILD)/ditto $(TESTS)
	@BUILD=$(BUILD) DITTO=$(BUILD)/ditto CHECK_LINT=0 scripts/check.sh

fuzz: ## libFuzzer (clang) on every parser, FUZZ_SECONDS (60) each
	$(Q)$(MAKE) --no-print-directory CC=clang VARIANT=fuzz CUDA=0 OPT=-O1 OPENMP= EXTRALIBS=-lgomp \
	  EXTRA="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -Wno-error -Wno-unknown-pragmas" \
	  fuzz-run

fuzz-run: $(FUZZERS)
	@BUILD=$(BUILD) FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz.sh

$(BUILD)/tests/fuzz_%: $(BUILD)/tests/fuzz_%.o $(LIBOBJ)
	@echo "  LD  $@"
	$(Q)$(CC) $(CFLAGS) -fsanitize=fuzzer -o $@ $^ $(LDLIBS)

lint-objects: $(OBJ)

lint: lint-objects ## the house rules that a script can check
	@BUILD=$(BUILD) scripts/lint.sh

bench: ditto $(BUILD)/tests/bench_cpu ## speed of the CPU table, time of a picture, peak memory against the plan
	@BUILD=$(BUILD) scripts/bench_cpu.sh

check-gpu: ## on a machine with a GPU and PyTorch: ops, parity with diffusers and faults of build/portable, into GPU_RESULTS
	@scripts/check_gpu.sh $(GPU_RESULTS)
	@DITTO=build/portable/ditto scripts/gpu_faults.sh 2>&1 | tee $(GPU_RESULTS)/faults.txt

PYTHON ?= python3
check-tokenizers: ditto ## ids of the real vocabularies below VOCABS against the reference libraries (Python)
	$(if $(VOCABS),,$(error check-tokenizers: give VOCABS=DIR))
	@$(PYTHON) scripts/check_tokenizers.py --tool "./ditto tokens" $(VOCABS)

format: ## clang-format on FILES (default: files changed since the last commit)
	@clang-format -i $(or $(FILES),$(shell git diff --name-only --diff-filter=d HEAD -- '*.c' '*.h' '*.cu'))

SHARE = $(DESTDIR)$(PREFIX)/share
install: ditto ## copy ditto to PREFIX/bin (/usr/local), its manual page and completion scripts to PREFIX/share
	install -D -m 755 ditto $(DESTDIR)$(PREFIX)/bin/ditto
	@mkdir -p $(SHARE)/man/man1 $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d
	./ditto man >$(SHARE)/man/man1/ditto.1
	./ditto completion bash >$(SHARE)/bash-completion/completions/ditto
	./ditto completion zsh >$(SHARE)/zsh/site-functions/_ditto
	./ditto completion fish >$(SHARE)/fish/vendor_completions.d/ditto.fish

# What every Linux has stays out; driver, CUDA, cuDNN and libav are looked up at run time.
SYSTEM_LIBS := /(libc|libm|libdl|librt|libpthread|ld-linux-x86-64)\.so
portable: ## build/portable: ditto and checkop with their libraries, for a machine with driver, CUDA and cuDNN only
	$(Q)$(MAKE) --no-print-directory VARIANT=portable-objects ARCH=x86-64-v3 portable-folder

portable-folder: $(BUILD)/ditto $(BUILD)/tests/checkop
	@rm -rf build/portable && mkdir -p build/portable/lib build/portable/tests
	@cp $(BUILD)/ditto build/portable/ && cp $(BUILD)/tests/checkop build/portable/tests/
	@strip -g build/portable/ditto build/portable/tests/checkop
	@ldd $^ | awk '$$3 ~ /^\// {print $$3}' | grep -Ev '$(SYSTEM_LIBS)' | sort -u | xargs cp -L -t build/portable/lib
	@echo "  build/portable: $$(du -sh build/portable | cut -f 1)"

clean: ## remove what was built
	rm -rf build ditto

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1:/p' $(firstword $(MAKEFILE_LIST)) | sed 's|^|  make |; s|:|\t|' | expand -t 26

.PHONY: all deps deps-list deps-test demo score-demo check check-full check-gpu asan asan-check fuzz fuzz-run lint lint-objects bench check-tokenizers \
        format install portable portable-folder clean help FORCE
