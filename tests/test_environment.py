"""Which environment variables belong to what is run, and which are somebody else's."""

from __future__ import annotations

from ngraph_mxnet.base.installation import PREFIXES, settings_in, without_settings

OTHERS = {"HOME": "/root", "AWS_OMP_KEY": "a secret", "ngraph_backend": "CPU"}


def test_settings_are_told_from_other_variables() -> None:
    ours = {f"{prefix}NUM": "1" for prefix in PREFIXES}
    assert settings_in({**OTHERS, **ours}) == ours and list(settings_in(ours)) == sorted(ours)
    assert without_settings({**OTHERS, **ours}) == OTHERS
