"""The paper's head: prototypes compete for patches, a gate selects salient parts, and three branches are fused."""
