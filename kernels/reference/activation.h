// Activations of one value, for the reference's other operations.
#ifndef MUSTER_KERNELS_REFERENCE_ACTIVATION_H_
#define MUSTER_KERNELS_REFERENCE_ACTIVATION_H_

#include "kernels/activation.h"

namespace muster::kernels::reference {

double Activated(Activation activation, double x);

// Whether the derivative at x, before the activation or after it, is one; else it is zero.
bool GradientPasses(Activation activation, double x);

}  // namespace muster::kernels::reference

#endif  // MUSTER_KERNELS_REFERENCE_ACTIVATION_H_
