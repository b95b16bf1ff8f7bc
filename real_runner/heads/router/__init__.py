"""A router's network: how many tokens each route would bring, said before anything is drafted.

config says what it is, network is the network and what it reads, producer makes its channel.
"""
