#define MUSTER_INSTRUCTION_SET avx512

#include "kernels/cpu/table/table_body.h"
