#include "trainer/data/transform.h"

#include <algorithm>
#include <cmath>

#include "common/status.h"
#include "kernels/kernel_table.h"

namespace muster::data {
namespace {

// The region that torchvision's Resize and CenterCrop select: the image is resized to cover size /
// center_crop, in whole pixels, and the centre is cropped at whole pixels.
Region CentralPart(ImageSize stored, ImageSize size, double center_crop) {
  const auto length = [center_crop](int64_t pixels) {
    return std::max<int64_t>(pixels,
                             std::llrint(static_cast<double>(pixels) / std::min(1.0, center_crop)));
  };
  ImageSize resized{length(size.height), length(size.width)};
  if (resized.width * stored.height >= resized.height * stored.width) {
    resized.height = resized.width * stored.height / stored.width;
  } else {
    resized.width = resized.height * stored.width / stored.height;
  }
  // Rounds half to even, as Python does.
  const double top = std::nearbyint(static_cast<double>(resized.height - size.height) / 2);
  const double left = std::nearbyint(static_cast<double>(resized.width - size.width) / 2);
  const double step_y = static_cast<double>(stored.height) / static_cast<double>(resized.height);
  const double step_x = static_cast<double>(stored.width) / static_cast<double>(resized.width);
  return {top * step_y, left * step_x, static_cast<double>(size.height) * step_y,
          static_cast<double>(size.width) * step_x};
}

// Extends the region by the surrounding pixels that its outermost resized pixels depend on.
Region WithSurroundings(const Region& part, ImageSize stored, ImageSize size) {
  const double margin_y = std::max(1.0, part.height / static_cast<double>(size.height));
  const double margin_x = std::max(1.0, part.width / static_cast<double>(size.width));
  const double top = std::max(0.0, part.top - margin_y);
  const double left = std::max(0.0, part.left - margin_x);
  const double bottom =
      std::min(static_cast<double>(stored.height), part.top + part.height + margin_y);
  const double right =
      std::min(static_cast<double>(stored.width), part.left + part.width + margin_x);
  return {top, left, bottom - top, right - left};
}

// The smallest region that contains both.
Region Union(const Region& a, const Region& b) {
  const double top = std::min(a.top, b.top);
  const double left = std::min(a.left, b.left);
  return {top, left, std::max(a.top + a.height, b.top + b.height) - top,
          std::max(a.left + a.width, b.left + b.width) - left};
}

// Converts `part` of the stored image to the pixels of a view in which `wanted` is at `decoded`.
Region InView(const Region& part, const Region& wanted, const Region& decoded) {
  const double scale_y = decoded.height / wanted.height;
  const double scale_x = decoded.width / wanted.width;
  return {decoded.top + (part.top - wanted.top) * scale_y,
          decoded.left + (part.left - wanted.left) * scale_x, part.height * scale_y,
          part.width * scale_x};
}

// Crops the view to the whole pixels that contain `part`, and translates `part` accordingly: crops
// before resizing, as torchvision's RandomResizedCrop does.
void CropTo(Region& part, ImageView& view) {
  const auto top = std::clamp<int64_t>(static_cast<int64_t>(part.top), 0, view.height - 1);
  const auto left = std::clamp<int64_t>(static_cast<int64_t>(part.left), 0, view.width - 1);
  const auto bottom = static_cast<int64_t>(std::ceil(part.top + part.height));
  const auto right = static_cast<int64_t>(std::ceil(part.left + part.width));
  view.height = std::clamp<int64_t>(bottom, top + 1, view.height) - top;
  view.width = std::clamp<int64_t>(right, left + 1, view.width) - left;
  view.pixels += top * view.row_bytes + left * view.channels;
  part.top -= static_cast<double>(top);
  part.left -= static_cast<double>(left);
}

}  // namespace

ImageTransform::ImageTransform(const ImageDataset* dataset, const TransformOptions& options)
    : options_(options),
      shape_{1, options.size.height, options.size.width, dataset->info().channels},
      reader_(dataset->NewReader()) {}

absl::Status ImageTransform::Apply(uint64_t epoch, uint32_t sample, uint32_t views, uint8_t* out,
                                   kernels::ImageTransformParams* transforms) {
  ASSIGN_OR_RETURN(const ImageSize stored, reader_->Open(sample));
  ASSIGN_OR_RETURN(const DecodedRegion decoded, Decode(stored, epoch, sample, views));
  const int64_t image_bytes = shape_.height * shape_.width * shape_.channels;
  for (uint32_t view = 0; view < views; ++view) {
    const kernels::ImageTransformParams params = ParamsOf(decoded, {epoch, sample, view});
    kernels::cpu::RenderImage(shape_, decoded.view.pixels, params, kernels::CpuKernels().resize,
                              scratch_, out + view * image_bytes);
    transforms[view] = kernels::WholeImage(shape_, view * image_bytes);
    transforms[view].erased_top = params.erased_top;
    transforms[view].erased_left = params.erased_left;
    transforms[view].erased_height = params.erased_height;
    transforms[view].erased_width = params.erased_width;
  }
  return absl::OkStatus();
}

absl::Status ImageTransform::Describe(uint64_t epoch, uint32_t sample, uint32_t views,
                                      kernels::ImageTransformParams* transforms) {
  ASSIGN_OR_RETURN(const ImageSize stored, reader_->Open(sample));
  ASSIGN_OR_RETURN(const DecodedRegion decoded, Decode(stored, epoch, sample, views));
  for (uint32_t view = 0; view < views; ++view) {
    transforms[view] = ParamsOf(decoded, {epoch, sample, view});
  }
  return absl::OkStatus();
}

absl::StatusOr<DecodedRegion> ImageTransform::Decode(ImageSize stored, uint64_t epoch,
                                                     uint32_t sample, uint32_t views) {
  const ImageSize size = options_.size;
  parts_.clear();
  // Decoded pixels per stored pixel.
  double rows = 0, columns = 0;
  for (uint32_t view = 0; view < views; ++view) {
    const Region part = PartOf(stored, {epoch, sample, view});
    rows = std::max(rows, options_.detail * static_cast<double>(size.height) / part.height);
    columns = std::max(columns, options_.detail * static_cast<double>(size.width) / part.width);
    const Region source = options_.augment.random_resized_crop.has_value()
                              ? part
                              : WithSurroundings(part, stored, size);
    wanted_ = view == 0 ? source : Union(wanted_, source);
    parts_.push_back(part);
  }
  // Tolerates rounding by a millionth of a pixel.
  const ImageSize at_least{static_cast<int64_t>(std::ceil(wanted_.height * rows - 1e-6)),
                           static_cast<int64_t>(std::ceil(wanted_.width * columns - 1e-6))};
  return reader_->Decode(wanted_, at_least);
}

Region ImageTransform::PartOf(ImageSize stored, const SampleView& of) const {
  const AugmentOptions& augment = options_.augment;
  if (!augment.random_resized_crop.has_value()) {
    return CentralPart(stored, options_.size, options_.center_crop);
  }
  const Rectangle crop = DrawCrop(*augment.random_resized_crop, augment.seed, stored, of);
  return {static_cast<double>(crop.top), static_cast<double>(crop.left),
          static_cast<double>(crop.height), static_cast<double>(crop.width)};
}

Rectangle ImageTransform::Erasure(const SampleView& of) const {
  const AugmentOptions& augment = options_.augment;
  if (!augment.random_erasing.has_value()) return {};
  return DrawErasure(*augment.random_erasing, augment.seed, options_.size, of);
}

kernels::ImageTransformParams ImageTransform::ParamsOf(const DecodedRegion& decoded,
                                                       const SampleView& of) const {
  ImageView source = decoded.view;
  Region part = InView(parts_[of.view], wanted_, decoded.region);
  if (options_.augment.random_resized_crop.has_value()) CropTo(part, source);
  const Placement placement = DrawPlacement(options_.augment, of);
  const Rectangle erasure = Erasure(of);
  kernels::ImageTransformParams params;
  params.image = source.pixels - decoded.view.pixels;
  params.row_bytes = source.row_bytes;
  params.in_height = static_cast<int32_t>(source.height);
  params.in_width = static_cast<int32_t>(source.width);
  params.top = part.top;
  params.left = part.left;
  params.box_height = part.height;
  params.box_width = part.width;
  params.dy = placement.dy;
  params.dx = placement.dx;
  params.flip = placement.flip;
  params.erased_top = erasure.top;
  params.erased_left = erasure.left;
  params.erased_height = erasure.height;
  params.erased_width = erasure.width;
  return params;
}

}  // namespace muster::data
