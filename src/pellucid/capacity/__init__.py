"""What a plan needs of a real machine and a real model: headers, measured step times, memory.

a model's headers, a machine -> Question -> pellucid.simulate -> Report
"""
