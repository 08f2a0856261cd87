"""The opcodes of pickles by name, as `pickletools` has them; pickle_opcodes.pxd declares to Cython those that are read.

All others build objects of other types, call functions, or refer to data outside of the file.
"""

import pickletools

globals().update({opcode.name: ord(opcode.code) for opcode in pickletools.opcodes})


def __getattr__(name: str) -> int:
    raise AttributeError(name)  # it stands for the types of the names above
