// The one door between Python and the native code.
#include <nanobind/nanobind.h>

#include "kernels/matmul/bindings.h"
#include "kernels/peaks/bindings.h"
#include "kernels/sampling/bindings.h"
#include "machine.h"
#include "program/bindings.h"
#include "quant/bindings.h"

namespace nb = nanobind;

NB_MODULE(_native, m) {
  m.doc() = "Pellucid's native code.";
  m.def(
      "cpu_features",
      [] {
        nb::dict found;
        for (const auto& feature : pellucid::cpu_features())
          found[feature.name.c_str()] = feature.present;
        return found;
      },
      "Instruction-set extensions the kernels choose by: name -> offered by this processor.");
  pellucid::bind_matmul(m);
  pellucid::bind_program(m);
  pellucid::bind_sampling(m);
  pellucid::bind_quant(m);
  pellucid::bind_peaks(m);  // after the pool it takes
}
