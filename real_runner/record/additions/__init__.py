"""What is added to a finished trace along its own texts: a head's channel, another drafter. Begin with add.

along goes along the texts; dry_run says before what an addition will take.
"""
