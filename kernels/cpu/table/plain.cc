#define MUSTER_INSTRUCTION_SET plain

#include "kernels/cpu/table/table_body.h"
