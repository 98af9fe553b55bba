"""What runs the replicas that are decided on."""
