// Pictures in a folder for each class, the layout of ImageNet and torchvision's ImageFolder.
//
//   PATH/train/CLASS/*.jpg     PATH/val/CLASS/*.jpg, or PATH/test/CLASS/*.jpg where there is no val
//
// Classes are the subfolders of train sorted by name (as bytes), numbered from 0; a class's
// pictures follow each other sorted by name. Names that begin with a dot are ignored. So are files
// whose name ends as that of a text or table does (.txt, .csv, .json, …, also Thumbs.db);
// everything else that is no .jpg or .jpeg (in any case) is refused rather than silently left out.
#ifndef MUSTER_TRAINER_DATA_IMAGE_FOLDER_H_
#define MUSTER_TRAINER_DATA_IMAGE_FOLDER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/data/image_dataset.h"

namespace muster::data {

// Lists the files and sees their sizes; a picture's content is first looked at by a reader, which
// turns grey pictures and CMYK ones into RGB. `info` gives all but the number of classes. NOT_FOUND
// for a folder that does not exist; DATA_LOSS for no class, a class without pictures, a test class
// that is not among those of train, and names that should not be there: all name the path. Its
// digest is of the names and sizes of all files.
absl::StatusOr<std::unique_ptr<ImageDataset>> OpenImageFolder(const DatasetInfo& info,
                                                              const std::string& path, Split split);

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_IMAGE_FOLDER_H_
