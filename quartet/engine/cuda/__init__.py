"""Decoding on CUDA: Triton kernels around the matrix products, and CUDA graphs of the passes that decode.

The modules that define kernels import Triton, which only builds of PyTorch for CUDA bring along. `support.py` decides
whether they are imported.
"""
