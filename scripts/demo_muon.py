"""demo_muon.py - the demo training's optimiser and CUDA-graph helpers.

Optimiser: momentum orthogonalised by Newton-Schulz for the hidden matrices (Muon, K. Jordan 2024; the update scaled
to AdamW's size as in Moonlight, 2025), Adam for everything else. Matrices of one shape are stacked, so that a step is
a few batched products instead of hundreds of small ones. The learning rate lives on the device, so that a step can be
captured. Graphs: launching some thousand small kernels costs several times what running them costs; a replay does not.
Easy to get wrong: gradients and inputs must keep their addresses, so they are zeroed and copied into, never replaced.
"""

import torch


def orthogonalise(g):
    """Nearest semi-orthogonal matrix, roughly, of each matrix in g [N, R, C] (singular values end in 0.7..1.2)."""
    x = g.bfloat16()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if tall else x


class Optimiser:
    """Muon on `matrices` (of a convolution's weight: [out, the rest]), Adam on `others`. Gradients are clipped to norm 1
    together."""

    def __init__(self, matrices, others, weight_decay=0.0, momentum=0.95, beta1=0.9, beta2=0.99):
        self.others, self.weight_decay, self.momentum = list(others), weight_decay, momentum
        self.beta1, self.beta2, self.count = beta1, beta2, 0
        shapes = {}
        for p in matrices:
            shapes.setdefault(tuple(p.flatten(1).shape), []).append(p)
        self.all = list(matrices) + self.others
        for p in self.all:
            p.grad = torch.zeros_like(p)
        self.groups = [([p.detach().flatten(1) for p in ps], torch.zeros(len(ps), *shape, device=ps[0].device))
                       for shape, ps in shapes.items()]
        self.group_grads = [[p.grad.flatten(1) for p in ps] for ps in shapes.values()]
        self.m = [torch.zeros_like(p) for p in self.others]
        self.v = [torch.zeros_like(p) for p in self.others]
        dev = self.all[0].device
        self.lr, self.adam_lr = torch.zeros((), device=dev), torch.zeros((), device=dev)

    def set_lr(self, lr):
        """Before every step: also advances Adam's bias correction."""
        self.count += 1
        self.lr.fill_(lr)
        self.adam_lr.fill_(lr * (1 - self.beta2 ** self.count) ** 0.5 / (1 - self.beta1 ** self.count))

    @torch.no_grad()
    def step(self):
        grads = [p.grad for p in self.all]
        total = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        torch._foreach_mul_(grads, (1.0 / (total + 1e-6)).clamp(max=1.0))
        g = [p.grad for p in self.others]
        torch._foreach_lerp_(self.m, g, 1 - self.beta1)
        torch._foreach_mul_(self.v, self.beta2)
        torch._foreach_addcmul_(self.v, g, g, 1 - self.beta2)
        down = torch._foreach_sqrt(self.v)
        torch._foreach_add_(down, 1e-8)
        update = torch._foreach_div(self.m, down)
        torch._foreach_mul_(update, self.adam_lr)
        torch._foreach_sub_(self.others, update)
        for (ps, buf), grads in zip(self.groups, self.group_grads):
            g = torch.stack(grads)
            buf.lerp_(g, 1 - self.momentum)
            u = orthogonalise(torch.lerp(g, buf, self.momentum)).float()
            u = u * (self.lr * (0.2 * max(u.shape[1:]) ** 0.5))
            torch._foreach_mul_(ps, 1 - self.lr * self.weight_decay)
            torch._foreach_sub_(ps, list(u.unbind(0)))


class Graphed:
    """Calls fn(*inputs) -> tensor (or None) through a CUDA graph, or plainly on a CPU or where capturing fails.
    fn must not synchronise or copy from the host. `undo`: tensors restored after the warm-up runs."""

    def __init__(self, fn, inputs, undo=(), say=print):
        self.fn, self.inputs, self.graph, self.out = fn, [x.clone() for x in inputs], None, None
        if not torch.cuda.is_available():
            return
        undo = list(undo)
        saved = [t.detach().clone() for t in undo]
        try:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    fn(*self.inputs)
            torch.cuda.current_stream().wait_stream(side)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.out = fn(*self.inputs)
            torch.cuda.synchronize()
            self.graph = graph
        except Exception as error:
            say("no CUDA graph:", repr(error)[:400])
        with torch.no_grad():
            for t, s in zip(undo, saved):
                t.copy_(s)

    def __call__(self, *inputs):
        if self.graph is None:
            return self.fn(*inputs)
        for mine, theirs in zip(self.inputs, inputs):
            mine.copy_(theirs)
        self.graph.replay()
        return self.out
