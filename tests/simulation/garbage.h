// Reports out of bounds, as faulty programs, workers and disks send them.
#ifndef MUSTER_TESTS_SIMULATION_GARBAGE_H_
#define MUSTER_TESTS_SIMULATION_GARBAGE_H_

#include "proto/muster/v1/worker.pb.h"
#include "tests/simulation/random.h"

namespace muster::simulation {

// Puts something out of bounds into a Hello, which must not change its meaning.
void Spoil(v1::Hello& hello, Random& random);
// Puts something out of bounds into a message with reports of ranks, and what may be used of it
// into `used`, which begins as a copy. Returns false if the message has no place for it.
bool Spoil(v1::WorkerMessage& message, v1::WorkerMessage& used, Random& random);
// A message of which nothing can be used.
v1::WorkerMessage MakeGarbage(Random& random);

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_GARBAGE_H_
