/* guide.h - contract of guidance in the space of the clean sample (x0), as LTX-2's pipelines do it: a velocity v belongs to
 * x0 = x - sigma v. Several predictions of one step are weighed there, and one velocity goes to the solver.
 *
 * GUIDE_DIFFUSERS is LTX2Pipeline's form. GUIDE_OFFICIAL is that of Lightricks' packages ltx-core and ltx-pipelines (1.2), where
 * the rescaling is one factor. Their latents are of the model's dtype: with GUIDE_OFFICIAL_BF16 each x0, what is made of
 * them and the velocity are rounded to BF16, still stored as F32. (On a GPU they divide by sigma as PyTorch does by a host
 * number, by multiplying with its reciprocal; here it is a division everywhere, as theirs on a CPU.)
 * F32 only, one shape, any strides whose last dimension is contiguous; every product, sum and quotient is rounded, no fma.
 * sigma F32 [1] in StepParams. Source of the formulas: LTX2Pipeline.__call__, convert_velocity_to_x0(),
 * convert_x0_to_velocity() and rescale_noise_cfg() of diffusers 0.40.
 * Easy to get wrong: the factors of the differences are made on the host in double and rounded once (scale - 1), and so is
 * 1 - rescale. A term that is off is a number 0 added: -0 becomes +0. */
#ifndef KERNELS_GUIDE_H
#define KERNELS_GUIDE_H

#include "core/tensor.h"

typedef enum GuideForm { GUIDE_DIFFUSERS, GUIDE_OFFICIAL, GUIDE_OFFICIAL_BF16 } GuideForm;

/* With X(v) = x - v sigma (GUIDE_OFFICIAL_BF16: rounded to BF16): c = X(cond) and
 *   y = ((c + cfg (c - X(neg))) + stg (c - X(perturbed))) + modality (c - X(isolated)),
 * where a prediction that is absent adds 0. c may be absent; y and c may each lie on an input of the same elements.
 * cfg: the published scale less 1; stg: the published one; modality: less 1. */
typedef struct GuideX0 {
    Tensor y, c, x, cond, neg, perturbed, isolated, sigma;
    float cfg, stg, modality;
    int32_t form;
} GuideX0;

/* y = (x - g) / sigma, the velocity that leads to g: x0 itself where rescale is 0; else
 * g = rescale (x0 (std(like) / std(x0))) + rest x0, rest being 1 - rescale; the official forms:
 * g = x0 (rescale (std(like) / std(x0)) + rest), GUIDE_OFFICIAL_BF16: g rounded to BF16, and once more with clean, and y.
 * std over all elements, unbiased, rounded to f32.
 * With clean, of x's shape [T,C], and its mask [T,1]: g becomes g (1 - mask) + clean mask, what a condition keeps.
 * like may be absent where rescale is 0, clean and mask together. y may lie on x0. BOUNDED: the order of the sums in std is
 * free. */
typedef struct VelocityX0 {
    Tensor y, x, x0, like, clean, mask, sigma;
    float rescale, rest;
    int32_t form;
} VelocityX0;

#endif
