"""The paper's head: prototypes compete for patches, a gate keeps the salient parts, three branches are fused."""
