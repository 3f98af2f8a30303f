"""What YuniKorn's ``/ws/v1`` answers, field by field, from the read model. No route is here."""
