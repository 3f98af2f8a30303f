"""The content of YuniKorn's ``/ws/v1`` answers, from the read model. No routes."""
