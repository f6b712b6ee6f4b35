#define MUSTER_INSTRUCTION_SET plain

#include "kernels/cpu/table_body.h"
