"""The campaign runs by hand and needs cosmic-ray, which the tests of everything else do without."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("cosmic_ray") else ["campaign.py", "mutant_places.py"]
