/* cuda_ring.cuh - blocks that stay on their multiprocessor and take the work in turns, while Hopper's copy engine brings what the
 * next turns read to a ring of slots in shared memory (cuda_copy.cuh). What the one-pass kernels of rms_modulate.h share.
 *
 * For .cu files only. No copy needs a register, so what is under way does not depend on how many threads are
 * there, and no turn waits for a load and then for another.
 * Easy to get wrong: a slot is filled again behind a barrier that follows its last reading, and what threads have put into it
 * themselves is published by each of them before that barrier (copies::publish); rows start and end at multiples of 16 bytes. */
#ifndef KERNELS_CUDA_RING_CUH
#define KERNELS_CUDA_RING_CUH

#include "kernels/cuda_copy.cuh"
#include "kernels/cuda_four.cuh"

namespace ring {

constexpr int MOST_SLOTS = 4;
constexpr size_t ROOM = 219 << 10; /* of 228 KiB, less what the system and small arrays of all resident blocks take */
constexpr int resident(int threads) { return threads <= 256 ? 3 : 2; } /* blocks of a multiprocessor: 80 or 64 registers */

/* Can the copy engine bring these rows? Absent ones are no hindrance. */
static inline bool brings(const four::Row &r) { return (uintptr_t)r.data % 16 == 0 && r.stride % fast::WIDE == 0; }

/* Blocks take the turns blockIdx, blockIdx + gridDim, ..., each the same number, as far as they go. The kernel is told how many
 * slots there are: two or more, for which the blocks may become fewer. */
template <typename A>
static inline void launch(const Exec *x, void (*kernel)(A, int), const A &args, int64_t turns, size_t slot_bytes, int threads) {
    int blocks = resident(threads), slots = (int)(ROOM / blocks / slot_bytes);
    if (slots > MOST_SLOTS) slots = MOST_SLOTS;
    if (slots < 2) slots = 2, blocks--;
    size_t bytes = (size_t)slots * slot_bytes;
    int64_t room = (int64_t)x->cuda->sm_count * blocks, each = (turns + room - 1) / room;
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes); /* else the launch fails */
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    fast::launch_early(x, kernel, dim3((unsigned)((turns + each - 1) / each)), (unsigned)threads, bytes, args, slots);
}

} /* namespace ring */

#endif
