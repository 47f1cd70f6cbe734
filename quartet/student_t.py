"""Quantile of Student's t distribution."""

from statistics import NormalDist

_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Student's t at 97.5 % for 1, 2, ... degrees of freedom."""


def student_t(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's t with `degrees` degrees of freedom.

    For degrees beyond the table, use Cornish and Fisher's expansion (Abramowitz and Stegun 26.7.5).
    """
    if degrees <= len(_T_975):
        return _T_975[degrees - 1]
    z = NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
