"""From raw predictions to answers: calibrated probabilities, decisions, prediction intervals."""
