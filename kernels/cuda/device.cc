#include "kernels/cuda/device.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/process/program_folder.h"
#include "common/status.h"
#include "kernels/capture.h"
#include "kernels/cuda/convolution/layer_factory.h"
#include "kernels/cuda/stream.h"
#include "kernels/out_of_memory.h"

namespace muster::kernels {
namespace {

class CudaEvent final : public DeviceEvent {
 public:
  CudaEvent(const MusterCudaApi& api, MusterCudaContext* context, MusterCudaEvent* event)
      : api_(api), context_(context), event_(event) {}
  ~CudaEvent() override {
    if (event_ == nullptr) return;
    api_.enter(context_);
    api_.release_event(context_, event_);
  }
  void Record() override {
    if (event_ == nullptr) return;
    api_.enter(context_);
    api_.record_event(context_, event_);
  }
  bool Done() override { return event_ == nullptr || api_.event_done(event_) != 0; }
  absl::Status Wait() override {
    if (event_ == nullptr)
      return absl::InternalError("CUDA: cannot create an event: the device has failed");
    const char* const error = api_.wait_for_event(event_);
    return error == nullptr ? absl::OkStatus() : absl::InternalError(absl::StrCat("CUDA: ", error));
  }

 private:
  const MusterCudaApi& api_;
  MusterCudaContext* const context_;
  MusterCudaEvent* const event_;  // null if the device had failed before
};

class CudaGraph final : public DeviceGraph {
 public:
  CudaGraph(const MusterCudaApi& api, MusterCudaContext* context, MusterCudaGraph* graph)
      : api_(api), context_(context), graph_(graph) {}
  ~CudaGraph() override {
    api_.enter(context_);
    api_.destroy_graph(context_, graph_);
  }
  void Launch() override {
    api_.enter(context_);
    api_.launch_graph(context_, graph_);
  }

 private:
  const MusterCudaApi& api_;
  MusterCudaContext* const context_;
  MusterCudaGraph* const graph_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(const MusterCudaApi& api, int ordinal, MusterCudaContext* context,
             const cuda::Numerics& numerics)
      : api_(api),
        ordinal_(ordinal),
        context_(context),
        layers_(std::make_unique<cuda::LayerFactory>(LayerSetup(), Runtime(numerics))) {}
  ~CudaDevice() override {
    Entered();
    layers_.reset();
    api_.close(context_);
  }

  std::string name() const override {
    return absl::StrCat("cuda:", ordinal_, " ", api_.device_name(context_));
  }
  bool host_memory() const override { return false; }
  const KernelTable& kernels() const override {
    return *static_cast<const KernelTable*>(Entered()->kernels);
  }
  absl::StatusOr<std::unique_ptr<Convolution>> MakeConvolution(
      const ConvolutionShape& shape, const ConvolutionOptions& options) override {
    return layers_->Make(shape, options);
  }
  absl::StatusOr<std::unique_ptr<NtXentLoss>> MakeNtXentLoss(const NtXentShape& largest) override {
    return layers_->MakeNtXentLoss(largest);
  }

  void CopyToDevice(void* to, const void* host, size_t bytes) override {
    if (capture_.Refuses("a copy from the host")) return;
    Entered()->copy_to_device(context_, to, host, bytes);
  }
  void CopyToHost(void* host, const void* from, size_t bytes) override {
    if (capture_.Refuses("a copy to the host")) return;
    Entered()->copy_to_host(context_, host, from, bytes);
  }
  void Copy(void* to, const void* from, size_t bytes) override {
    Entered()->copy(context_, to, from, bytes);
  }
  void Zero(void* to, size_t bytes) override { Entered()->zero(context_, to, bytes); }
  size_t free_bytes() override {
    size_t bytes = 0;
    const char* const error = Entered()->free_memory(context_, &bytes);
    return error == nullptr ? bytes : 0;
  }
  std::unique_ptr<DeviceEvent> MakeEvent() override {
    return std::make_unique<CudaEvent>(api_, context_, Entered()->make_event(context_));
  }
  absl::StatusOr<std::unique_ptr<DeviceStream>> MakeStream() override {
    ASSIGN_OR_RETURN(HostMemory flag,
                     AllocateHost(sizeof(std::atomic<uint32_t>), "the failure flag of a stream"));
    return cuda::MakeStream(*Entered(), context_, &capture_, std::move(flag));
  }
  absl::Status Synchronize() override {
    if (capture_.Refuses("waiting")) return NotDuringCapture("a wait");
    (void)Entered()->synchronize(context_);  // error() returns its error as well
    return error();
  }
  absl::Status error() override {
    if (capture_.active()) return layer_error_;
    size_t refused_bytes = 0;
    const char* const error = Entered()->error(context_, &refused_bytes);
    if (error == nullptr) return layer_error_;
    if (refused_bytes == 0) return StatusOf(error);
    return OutOfMemoryError(name(), "a kernel's scratch memory", refused_bytes, free_bytes(),
                            error);
  }

  bool supports_graph_capture() const override { return api_.start_capture != nullptr; }
  absl::Status StartCapture() override {
    absl::Status started = StatusOf(Entered()->start_capture(context_));
    if (!started.ok()) return started;
    capture_.Start();
    layer_error_before_capture_ = layer_error_;
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<DeviceGraph>> FinishCapture() override {
    const absl::Status refused = capture_.Finish();
    MusterCudaGraph* graph = nullptr;
    const absl::Status finished = StatusOf(Entered()->finish_capture(context_, &graph));
    std::unique_ptr<CudaGraph> made;
    if (finished.ok()) made = std::make_unique<CudaGraph>(api_, context_, graph);
    absl::Status status = layer_error_before_capture_.ok() ? layer_error_ : absl::OkStatus();
    status.Update(refused);
    status.Update(finished);
    if (status.ok()) return made;
    // No work of the capture has run. The caller may run it without, which reports what is wrong.
    layer_error_ = layer_error_before_capture_;
    return status;
  }

 private:
  const MusterCudaApi* Entered() const {
    api_.enter(context_);
    return &api_;
  }
  absl::Status StatusOf(const char* error) const {
    if (error == nullptr) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(name(), ": ", error));
  }
  absl::Status NotDuringCapture(const char* call) const {
    return absl::FailedPreconditionError(
        absl::StrCat(name(), ": ", call, " is not allowed during graph capture"));
  }
  absl::StatusOr<void*> AllocateBytes(size_t bytes) override {
    if (capture_.Refuses("an allocation")) {
      return NotDuringCapture("an allocation");
    }
    void* data = nullptr;
    const char* const error = Entered()->allocate(context_, bytes, &data);
    if (error != nullptr) return absl::ResourceExhaustedError(error);
    return data;
  }
  void Free(void* data, size_t) override { Entered()->release(context_, data); }
  absl::StatusOr<void*> AllocateHostBytes(size_t bytes) override {
    void* data = nullptr;
    const char* const error = Entered()->allocate_host(context_, bytes, &data);
    if (error != nullptr) return absl::ResourceExhaustedError(error);
    return data;
  }
  void FreeHost(void* data) override { Entered()->release_host(context_, data); }

  cuda::LayerFactory::Setup LayerSetup() const {
    return {.search_path = cuda::CudaLibrarySearchPath(),
            .plan_folder = cuda::DefaultPlanFolder(),
            .machine = absl::StrCat(api_.device_name(context_), " CUDA ", api_.driver_version()),
            .stream = Entered()->stream(context_)};
  }
  cuda::LayerRuntime Runtime(const cuda::Numerics& numerics) {
    return {.device = this,
            .kernels = static_cast<const ConvolutionKernels*>(api_.convolution_kernels),
            .time = [this](absl::FunctionRef<void()> work) { return Time(work); },
            .report =
                [this](const absl::Status& error) { layer_error_.Update(Annotate(error, name())); },
            .numerics = numerics};
  }
  absl::StatusOr<float> Time(absl::FunctionRef<void()> work) const {
    float milliseconds = 0;
    const char* const error = Entered()->time(
        context_, [](void* argument) { (*static_cast<absl::FunctionRef<void()>*>(argument))(); },
        &work, &milliseconds);
    if (error == nullptr) return milliseconds;
    return absl::InternalError(absl::StrCat(name(), ": ", error));
  }

  const MusterCudaApi& api_;
  const int ordinal_;
  MusterCudaContext* const context_;
  absl::Status layer_error_;  // the first error of a layer
  absl::Status layer_error_before_capture_;
  std::unique_ptr<cuda::LayerFactory> layers_;
  Capture capture_;
};

}  // namespace

std::vector<std::string> CudaLibraryPaths(const std::string& folder) {
  constexpr char kLibrary[] = "libmuster-cuda.so";
  const std::filesystem::path path = folder;
  return {path / kLibrary, path.parent_path() / "lib" / kLibrary};
}

absl::StatusOr<const MusterCudaApi*> OpenCudaLibrary(const std::string& library) {
  std::vector<std::string> paths = {library};
  if (library.empty()) {
    const std::string folder = ProgramFolder();
    if (folder.empty())
      return absl::NotFoundError(
          "CUDA: cannot find libmuster-cuda.so: /proc is not mounted, so this program's folder is "
          "unknown");
    paths = CudaLibraryPaths(folder);
  }
  const auto path = std::find_if(paths.begin(), paths.end(), [](const std::string& each) {
    std::error_code error;
    return std::filesystem::exists(each, error);
  });
  if (path == paths.end()) {
    return absl::NotFoundError(absl::StrCat("CUDA: no ", absl::StrJoin(paths, ", no ")));
  }
  void* const opened = dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed
  // dlerror() names the missing library.
  if (opened == nullptr) return absl::NotFoundError(absl::StrCat("CUDA: ", dlerror()));
  void* const entry = dlsym(opened, MUSTER_CUDA_API_SYMBOL);
  if (entry == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "CUDA: ", *path, " is not a Muster plugin: it has no symbol ", MUSTER_CUDA_API_SYMBOL));
  }
  const MusterCudaApi* const api = reinterpret_cast<decltype(&MusterCudaGetApi)>(entry)();
  if (api->abi != MUSTER_CUDA_ABI || api->kernel_table_bytes != sizeof(KernelTable)) {
    return absl::FailedPreconditionError(
        absl::StrCat("CUDA: ", *path, " is of another version of Muster: it has interface ",
                     api->abi, " (", api->kernel_table_bytes, " bytes), this binary needs ",
                     MUSTER_CUDA_ABI, " (", sizeof(KernelTable), " bytes)"));
  }
  return api;
}

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int ordinal, const std::string& library,
                                                       const cuda::Numerics& numerics) {
  const absl::StatusOr<const MusterCudaApi*> opened = OpenCudaLibrary(library);
  if (!opened.ok()) return opened.status();
  const MusterCudaApi& api = **opened;
  const char* error = nullptr;
  const int count = api.device_count(&error);
  if (count == 0) return absl::UnavailableError(absl::StrCat("CUDA: no GPU: ", error));
  if (ordinal < 0 || ordinal >= count) {
    return absl::UnavailableError(
        absl::StrCat("CUDA: no GPU ", ordinal, ": this machine has GPUs 0 to ", count - 1));
  }
  MusterCudaContext* context = nullptr;
  error = api.open(ordinal, &context);
  if (error != nullptr) {
    return absl::UnavailableError(absl::StrCat("CUDA: GPU ", ordinal, ": ", error));
  }
  return std::make_unique<CudaDevice>(api, ordinal, context, numerics);
}

absl::StatusOr<int> EnablePeerAccess(int devices, const std::string& library) {
  const absl::StatusOr<const MusterCudaApi*> api = OpenCudaLibrary(library);
  if (!api.ok()) return api.status();
  int pairs = 0;
  for (int from = 0; from < devices; ++from) {
    for (int to = 0; to < devices; ++to) {
      if (from != to) pairs += (*api)->enable_peer_access(from, to);
    }
  }
  return pairs;
}

}  // namespace muster::kernels
