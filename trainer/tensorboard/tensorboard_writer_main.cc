// Writes event files for tests/e2e/tensorboard_test.py, which reads them with TensorBoard's reader.
//
//   tensorboard_writer DIRECTORY FIRST_STEP LAST_STEP
//
// Writes one scalar per step from FIRST_STEP to LAST_STEP, loss = 1/step + generation/1000, where
// generation is the number of files in the directory; then prints `written` and waits for the end
// of standard input.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "trainer/tensorboard/tensorboard.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int first = std::atoi(argv[2]);
  const int last = std::atoi(argv[3]);
  auto writer = muster::train::TensorBoardWriter::Create(argv[1], first);
  if (!writer.ok()) {
    std::cerr << writer.status().message() << "\n";
    return 1;
  }
  const std::filesystem::directory_iterator files(argv[1]);
  const auto generation = std::distance(files, std::filesystem::directory_iterator());
  for (int step = first; step <= last; ++step) {
    const double loss = 1.0 / step + static_cast<double>(generation) / 1000;
    if (!(*writer)->AddScalars(step, {{"train/loss", loss}, {"test/accuracy", 0.5}}).ok()) return 1;
  }
  std::puts("written");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}
