"""Questions asked of vectors and traces: tensors and frames in, tensors and frames out."""
