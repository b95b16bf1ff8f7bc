"""Result rows summed up by policy: acceptance lengths, speeds, and their table as text."""
