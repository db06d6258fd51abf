"""Datasets: what they hold, who reads them, what workers copy."""
