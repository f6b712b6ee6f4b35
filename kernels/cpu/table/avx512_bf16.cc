#define MUSTER_INSTRUCTION_SET avx512_bf16

#include "kernels/cpu/table/table_body.h"
