"""What can be seen of a running pipeline from outside: for the command line, the edge's page and the autoscaler."""
