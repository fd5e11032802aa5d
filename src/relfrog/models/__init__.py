"""Everything that learns, behind one interface: fit, save, load, predict."""

from relfrog.kinds import MODELS, ModelKind
from relfrog.models.model import Model
from relfrog.models.network import NetworkModel
from relfrog.training.prepared import Prepared

__all__ = ["MODELS", "Model", "ModelKind", "NetworkModel", "Prepared"]
