"""Every system side by side: systems names them, field goes through the steps, rows makes the table."""
