# Makefile - builds ./ditto, its tests and tools. `make help` lists the targets.
# CUDA=0 builds the CPU table only; by default CUDA objects are built where nvcc is found.
# ARCH picks the CPU (native by default; x86-64-v3 for a folder that travels).

CC      ?= cc
ARCH    ?= native
NVCC    ?= $(shell command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
CUDA    ?= $(if $(NVCC),1,0)
VARIANT ?= release
OPT     ?= -O3
OPENMP  ?= -fopenmp

BUILD   := build/$(VARIANT)
DEPS    := libcjson libpcre2-8 libutf8proc openblas
WARN    := -Wall -Wextra -Werror -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
# Contraction off: every fma that the reference contains is written as fmaf (README, "Rounding").
CFLAGS  := -std=c11 -D_GNU_SOURCE $(OPT) -g -march=$(ARCH) -ffp-contract=off $(OPENMP) $(WARN) -Isrc $(EXTRA)
LDLIBS  = $(shell pkg-config --libs $(DEPS)) -lm -lpthread
CPPDEPS = $(shell pkg-config --cflags $(DEPS) | sed 's/-I/-isystem /g')

SRC     := $(sort $(wildcard src/*.c src/*/*.c))
OBJ     := $(SRC:%.c=$(BUILD)/%.o)
LIBOBJ  := $(filter-out $(BUILD)/src/main.o,$(OBJ))
TESTS   := $(sort $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_*.c)))

all: ditto

ditto: $(BUILD)/ditto
	@cp -f $< $@

$(BUILD)/ditto: $(OBJ)
	$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(CPPDEPS) -MMD -MP -c -o $@ $<

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(LIBOBJ)
	$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS)

.PRECIOUS: $(BUILD)/%.o
-include $(shell find build -name '*.d' 2>/dev/null)

clean:
	rm -rf build ditto

.PHONY: all clean
