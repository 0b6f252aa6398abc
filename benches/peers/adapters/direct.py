from lib import *


class Direct(Adapter):
    """control: no proxy at all"""

    name = 'direct'


ADAPTERS = [Direct()]
