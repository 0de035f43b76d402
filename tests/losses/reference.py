"""Reference implementations of every loss, as plain loops over images, pairs and patches."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum() / ((a * a).sum() * (b * b).sum()).sqrt()


def mean(values: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(values)).mean()


def log_softmax(logits: Sequence[Tensor]) -> list[Tensor]:
    top = max(x.item() for x in logits)
    total = sum((x - top).exp() for x in logits)
    return [x - top - torch.as_tensor(total).log() for x in logits]


def split(location: Tensor, is_drone: Tensor, anchor: int) -> tuple[list[int], list[int]]:
    """Positives and negatives of an anchor: images of the other view."""
    other = [j for j in range(len(location)) if is_drone[j] != is_drone[anchor]]
    return (
        [j for j in other if location[j] == location[anchor]],
        [j for j in other if location[j] != location[anchor]],
    )


def circle(embedding: Tensor, location: Tensor, is_drone: Tensor, m: float, gamma: float) -> Tensor:
    losses = []
    for i in range(len(location)):
        positives, negatives = split(location, is_drone, i)
        product = torch.zeros((), dtype=embedding.dtype)
        for p in positives:
            for n in negatives:
                sp, sn = cosine(embedding[i], embedding[p]), cosine(embedding[i], embedding[n])
                weight_p, weight_n = max(1 + m - sp.item(), 0), max(sn.item() + m, 0)
                product = product + torch.exp(gamma * (weight_n * (sn - m) - weight_p * (sp - (1 - m))))
        if positives and negatives:
            losses.append(torch.log(1 + product))
    return mean(losses)


def proxy_anchor(embedding: Tensor, proxies: Tensor, location: Tensor, delta: float, alpha: float) -> Tensor:
    pulls, pushes = [], []
    for c in range(len(proxies)):
        pull = push = torch.zeros((), dtype=embedding.dtype)
        for i in range(len(location)):
            s = cosine(embedding[i], proxies[c])
            if location[i] == c:
                pull = pull + torch.exp(-alpha * (s - delta))
            else:
                push = push + torch.exp(alpha * (s + delta))
        pushes.append(torch.log(1 + push))
        if c in location.tolist():
            pulls.append(torch.log(1 + pull))
    return mean(pulls) + mean(pushes)


def info_nce(embedding: Tensor, log_scale: Tensor, location: Tensor, is_drone: Tensor, smoothing: float) -> Tensor:
    directions = []
    for from_drone in (True, False):
        losses = []
        for i in range(len(location)):
            positives, negatives = split(location, is_drone, i)
            if bool(is_drone[i]) != from_drone or not negatives:
                continue
            for j in positives:
                log_p = log_softmax([log_scale.exp() * cosine(embedding[i], embedding[k]) for k in [j, *negatives]])
                losses.append(-(1 - smoothing) * log_p[0] - smoothing * mean(log_p))
        directions.append(mean(losses))
    return mean(directions)


def patch_nce(tokens: Tensor, prototype: Tensor, location: Tensor, is_drone: Tensor, tau: float) -> Tensor:
    patches = [(b, i) for b in range(tokens.shape[0]) for i in range(tokens.shape[1])]
    directions: dict[bool, list[Tensor]] = {True: [], False: []}
    for b, i in patches:
        positives = [
            (c, j)
            for c, j in patches
            if is_drone[b] != is_drone[c] and location[b] == location[c] and prototype[b, i] == prototype[c, j]
        ]
        negatives = [patch for patch in patches if patch != (b, i) and patch not in positives]
        if positives and negatives:
            others = [cosine(tokens[b, i], tokens[n]) / tau for n in negatives]
            terms = [-log_softmax([cosine(tokens[b, i], tokens[p]) / tau, *others])[0] for p in positives]
            directions[bool(is_drone[b])].append(mean(terms))
    return mean([mean(losses) for losses in directions.values()])


def entropy(logits: Tensor) -> float:
    return -sum(x.item() * math.exp(x.item()) for x in log_softmax(list(logits)))


def uapa(
    embedding: Tensor, proxies: Tensor, location: Tensor, is_drone: Tensor, alpha: float, t0: float, direction: str
) -> Tensor:
    losses = []
    for i in range(len(location)):
        for j in split(location, is_drone, i)[0] if is_drone[i] else []:
            z_d = torch.stack([alpha * cosine(embedding[i], proxy) for proxy in proxies])
            z_s = torch.stack([alpha * cosine(embedding[j], proxy) for proxy in proxies]).detach()
            t = t0 * (1 + max(entropy(z_d) - entropy(z_s), 0) / math.log(len(proxies)))
            log_d, log_s = log_softmax(list(z_d / t)), log_softmax(list(z_s / t))
            p, q = (log_d, log_s) if direction == "reverse" else (log_s, log_d)
            losses.append(t**2 * torch.stack([a.exp() * (a - b) for a, b in zip(p, q, strict=True)]).sum())
    return mean(losses)


def layer_norm(x: Tensor) -> Tensor:
    return (x - x.mean()) / torch.sqrt(((x - x.mean()) ** 2).mean() + 1e-5)


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def masked_reconstruction(
    descriptors: Tensor, parameters: Sequence[Tensor], tokens: Tensor, assignment: Tensor, masked: Tensor
) -> Tensor:
    w1, b1, gain, shift, w2, b2 = parameters
    losses = []
    for b, i in masked.nonzero().tolist():
        mixed = torch.zeros_like(descriptors[b, 0])
        for k in range(descriptors.shape[1]):
            mixed = mixed + assignment[b, i, k].item() * descriptors[b, k]
        hidden = layer_norm(gelu(w1 @ mixed + b1)) * gain + shift
        losses.append(1 - cosine(w2 @ hidden + b2, tokens[b, i]))
    return mean(losses)


def diversity(prototypes: Tensor) -> Tensor:
    count = len(prototypes)
    pairs = [(j, k) for j in range(count) for k in range(count) if j != k]
    return mean([cosine(prototypes[j], prototypes[k]) ** 2 for j, k in pairs])


def teacher_distillation(embedding: Tensor, parameters: Sequence[Tensor], teacher: Tensor) -> Tensor:
    weight, gain, shift = parameters
    losses = []
    for f, t in zip(embedding, teacher, strict=True):
        student = layer_norm(weight @ f) * gain + shift
        losses.append(((student - layer_norm(t)) ** 2).mean() + 1 - cosine(student, t))
    return mean(losses)


def self_distillation(embedding: Tensor, ema: Tensor) -> Tensor:
    return mean([1 - cosine(f, g) for f, g in zip(embedding, ema, strict=True)])


def altitude(
    pooled: Tensor, parameters: Sequence[Tensor], metres: Tensor, is_drone: Tensor, offset: float, scale: float
) -> Tensor:
    w1, b1, w2, b2 = parameters
    losses = []
    for x, a, drone in zip(pooled, metres.tolist(), is_drone.tolist(), strict=True):
        if drone and not math.isnan(a):
            error = ((w2 @ gelu(w1 @ x + b1) + b2).squeeze() - (a - offset) / scale).abs()
            losses.append(error**2 / 2 if error < 1 else error - 0.5)
    return mean(losses)
