"""What a simulated GPU is made of (`load.simulated_gpu`): its time, its work, its log, and what it says."""
