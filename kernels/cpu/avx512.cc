#define MUSTER_INSTRUCTION_SET avx512

#include "kernels/cpu/table_body.h"
