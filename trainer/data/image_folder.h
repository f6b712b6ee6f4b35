// Images in one folder per class, the layout of ImageNet and torchvision's ImageFolder.
//
//   PATH/train/CLASS/*.jpg     PATH/val/CLASS/*.jpg, or PATH/test/CLASS/*.jpg if there is no val
//
// Classes are the subfolders of train sorted by name (as bytes), numbered from 0; a class's images
// are sorted by name. Names that begin with a dot are ignored, and so are files with the extension
// of a text or table (.txt, .csv, .json, …, also Thumbs.db). All other files that are not .jpg or
// .jpeg (in any case) are an error rather than silently skipped.
#ifndef MUSTER_TRAINER_DATA_IMAGE_FOLDER_H_
#define MUSTER_TRAINER_DATA_IMAGE_FOLDER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/data/cache_file.h"
#include "trainer/data/image_dataset.h"

namespace muster::data {

// Indexes the files and their sizes, once per machine (trainer/data/folder_index.h). A reader later
// decodes an image's content and converts grey and CMYK images to RGB. `info` contains everything
// except the number of classes. NOT_FOUND if a folder does not exist; DATA_LOSS for no class, a
// class without images, a test class that does not exist in train, and unexpected files or folders.
// All errors name the path. The digest covers the names and sizes of all files.
absl::StatusOr<std::unique_ptr<ImageDataset>> OpenImageFolder(const DatasetInfo& info,
                                                              const std::string& path, Split split,
                                                              const Cache& cache);

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_IMAGE_FOLDER_H_
