// Support for TSan builds: options, suppressions and annotations of Abseil's synchronization and
// reference counts. The system's Abseil is not instrumented, so without annotations all data guarded
// by an absl::Mutex would seem to race. The functions below replace Abseil's, annotate the operation
// and call the originals.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);

// A race ends the process with a signal, so that the parent process of a rank detects it.
extern "C" const char* __tsan_default_options() { return "halt_on_error=1:abort_on_error=1"; }

extern "C" const char* __tsan_default_suppressions() {
  return
      // Abseil guards the tables of its deadlock detector with a spin lock.
      "race:libabsl_graphcycles_internal\n"
      // Gloo destroys a buffer once the atomic reference count of its users is zero.
      "race:libgloo.so\n";
}

namespace absl {
ABSL_NAMESPACE_BEGIN
namespace {

// Calls Abseil's own definition of the member function `mangled_name`.
template <typename Result, typename... Args>
Result CallReal(const char* mangled_name, Args... args) {
  return reinterpret_cast<Result (*)(Args...)>(dlsym(RTLD_NEXT, mangled_name))(args...);
}

// Scope of a call that releases `mutex`. Abseil evaluates the conditions of waiting threads in the
// releasing thread while it still holds the mutex. ThreadSanitizer, which already considers the
// mutex released, must ignore these reads.
class Releasing {
 public:
  explicit Releasing(void* mutex) {
    __tsan_release(mutex);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  }
  ~Releasing() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
};

// Calls a function that releases and acquires `mutex`.
template <typename Result, typename... Args>
Result Wait(Mutex* mutex, const char* mangled_name, Args... args) {
  Result result;
  {
    const Releasing releasing(mutex);
    result = CallReal<Result>(mangled_name, args...);
  }
  __tsan_acquire(mutex);
  return result;
}

// The address of the member that the inline function HasBeenNotified loads.
void* Flag(const Notification* notification) {
  return reinterpret_cast<char*>(const_cast<Notification*>(notification)) + sizeof(Mutex);
}

bool Notified(const Notification* notification, bool result) {
  if (result) __tsan_acquire(Flag(notification));
  return result;
}

}  // namespace

#define ABSEIL(name) "_ZN4absl7debian3" name
#define ABSEIL_CONST(name) "_ZNK4absl7debian3" name

void Mutex::Lock() {
  CallReal<void>(ABSEIL("5Mutex4LockEv"), this);
  __tsan_acquire(this);
}

bool Mutex::TryLock() {
  const bool locked = CallReal<bool>(ABSEIL("5Mutex7TryLockEv"), this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::Unlock() {
  const Releasing releasing(this);
  CallReal<void>(ABSEIL("5Mutex6UnlockEv"), this);
}

void Mutex::ReaderLock() {
  CallReal<void>(ABSEIL("5Mutex10ReaderLockEv"), this);
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() {
  const Releasing releasing(this);
  CallReal<void>(ABSEIL("5Mutex12ReaderUnlockEv"), this);
}

void Mutex::LockWhen(const Condition& condition) {
  CallReal<void>(ABSEIL("5Mutex8LockWhenERKNS0_9ConditionE"), this, &condition);
  __tsan_acquire(this);
}

void Mutex::Await(const Condition& condition) { AwaitWithDeadline(condition, InfiniteFuture()); }

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  return Wait<bool>(this, ABSEIL("5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE"), this,
                    &condition, timeout);
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  return Wait<bool>(this, ABSEIL("5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE"), this,
                    &condition, deadline);
}

void CondVar::Wait(Mutex* mutex) { WaitWithDeadline(mutex, InfiniteFuture()); }

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  return absl::Wait<bool>(mutex, ABSEIL("7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE"),
                          this, mutex, timeout);
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  return absl::Wait<bool>(mutex, ABSEIL("7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE"), this,
                          mutex, deadline);
}

// The last thread deletes what the others have released.
void Status::UnrefNonInlined(uintptr_t rep) {
  __tsan_release(reinterpret_cast<void*>(rep));
  __tsan_acquire(reinterpret_cast<void*>(rep));
  CallReal<void>("_ZN4absl7debian36Status15UnrefNonInlinedEm", rep);
}

void Notification::Notify() {
  __tsan_release(Flag(this));
  CallReal<void>(ABSEIL("12Notification6NotifyEv"), this);
}

void Notification::WaitForNotification() const {
  CallReal<void>(ABSEIL_CONST("12Notification19WaitForNotificationEv"), this);
  __tsan_acquire(Flag(this));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  return Notified(this, CallReal<bool>(ABSEIL_CONST("12Notification30WaitForNotificationWithTimeout"
                                                    "ENS0_8DurationE"),
                                       this, timeout));
}

bool Notification::WaitForNotificationWithDeadline(Time deadline) const {
  return Notified(this,
                  CallReal<bool>(ABSEIL_CONST("12Notification31WaitForNotificationWithDeadline"
                                              "ENS0_4TimeE"),
                                 this, deadline));
}

ABSL_NAMESPACE_END
}  // namespace absl
