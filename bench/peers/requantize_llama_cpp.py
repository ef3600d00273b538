"""llama.cpp's own quantizer, from one GGUF file to another:

    python requantize_llama_cpp.py SOURCE TARGET q4_0

Run by an interpreter that has llama-cpp-python.
"""

import ctypes
import sys

import llama_cpp as lc


def main():
    source, target, kind = sys.argv[1:4]
    lc.llama_backend_init()
    parameters = lc.llama_model_quantize_default_params()
    parameters.ftype = getattr(lc, f"LLAMA_FTYPE_MOSTLY_{kind.upper()}")
    parameters.allow_requantize = True
    status = lc.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(parameters))
    if status != 0:
        sys.exit(f"llama_model_quantize returned {status}")


main()
