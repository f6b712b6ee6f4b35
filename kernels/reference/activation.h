// Activations of single values, for the other reference operations.
#ifndef MUSTER_KERNELS_REFERENCE_ACTIVATION_H_
#define MUSTER_KERNELS_REFERENCE_ACTIVATION_H_

#include "kernels/activation.h"

namespace muster::kernels::reference {

double Activated(Activation activation, double x);

// Whether the derivative is one rather than zero at x, which may be the input or the output.
bool GradientPasses(Activation activation, double x);

}  // namespace muster::kernels::reference

#endif  // MUSTER_KERNELS_REFERENCE_ACTIVATION_H_
