"""What every module may use: arrays, threads, progress, validation."""
