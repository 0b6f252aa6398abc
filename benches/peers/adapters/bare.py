"""No gateway: what the kernel takes to answer or to forward, as the bound that no gateway can go below (tools/bare.c)."""

from lib import *


class Bare(Adapter):
    caps = {'limit'}

    def __init__(self, name, forwards):
        self.name, self.forwards = name, forwards

    def argv(self, sp, d):
        return [TOOLS + '/bare', str(sp['port'])] + ([str(sp['upstream'])] if self.forwards else [])


ADAPTERS = [Bare('bare-answer', False), Bare('bare-forward', True)]
