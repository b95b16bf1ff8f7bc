"""What a log of one policy's rounds would predict for others. Begin with logs."""
