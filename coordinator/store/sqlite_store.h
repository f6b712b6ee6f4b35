// The default store: one SQLite file with one table of keys and values.
//
// It uses a write-ahead log with full synchronization: Commit returns after the log is on disk. The
// file's user_version is the layout of this table, not of the records in it (that is the record
// "meta/schema").
#ifndef MUSTER_COORDINATOR_STORE_SQLITE_STORE_H_
#define MUSTER_COORDINATOR_STORE_SQLITE_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/store/store.h"

struct sqlite3;
struct sqlite3_stmt;

namespace muster::store {

struct SqliteOptions {
  // The maximum number of pages (4 KiB each) in the file; 0 for SQLite's own limit. Commits beyond
  // it fail with RESOURCE_EXHAUSTED, as on a full disk.
  uint32_t max_pages = 0;
};

class SqliteStore : public Store {
 public:
  // Creates the file if it is missing. Hold the lock of a DataDir while the store is open: SQLite
  // alone allows two processes to write in turn. Errors: DATA_LOSS when the file is damaged or not
  // a database; FAILED_PRECONDITION when a newer Muster or another program created it;
  // PERMISSION_DENIED, RESOURCE_EXHAUSTED or INTERNAL when it cannot be opened. All messages name
  // the file.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(const std::string& path,
                                                           const SqliteOptions& options = {});
  ~SqliteStore() override;

  absl::Status Commit(absl::Span<const Mutation> batch) override;
  absl::Status CommitUnsynced(absl::Span<const Mutation> batch) override;
  absl::StatusOr<std::vector<Record>> Scan(absl::string_view prefix) const override;
  // Includes the space of deleted records, as far as the disk has as much.
  Space Measure() const override;

 private:
  struct CloseDatabase {
    void operator()(sqlite3* database) const;
  };
  struct FinalizeStatement {
    void operator()(sqlite3_stmt* statement) const;
  };
  using Statement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

  // A connection with its prepared statements, which are finalized before the connection is closed.
  struct Connection {
    std::unique_ptr<sqlite3, CloseDatabase> database;
    Statement begin, put, erase, commit, rollback;  // used by the writer
    Statement scan, scan_all;                       // used by the reader
  };

  explicit SqliteStore(std::string path) : path_(std::move(path)) {}
  absl::Status OpenConnection(Connection& connection) const;
  absl::Status CheckLayout(Connection& connection) const;
  absl::Status Prepare(const Connection& connection, absl::string_view sql, Statement& out) const;
  absl::Status Execute(const Connection& connection, const std::string& sql) const;
  absl::StatusOr<int64_t> QueryInt(const Connection& connection, const std::string& sql) const;
  absl::Status Run(const Connection& connection, const Statement& statement) const;
  absl::Status Transact(absl::Span<const Mutation> batch, bool synced)
      ABSL_LOCKS_EXCLUDED(write_mutex_);
  absl::Status Write(absl::Span<const Mutation> batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::Status ToStatus(const Connection& connection, int code, absl::string_view doing) const;

  const std::string path_;
  absl::Mutex write_mutex_;
  Connection writer_ ABSL_GUARDED_BY(write_mutex_);
  bool synced_ ABSL_GUARDED_BY(write_mutex_) = true;  // each commit waits for the disk
  mutable absl::Mutex read_mutex_;
  Connection reader_ ABSL_GUARDED_BY(read_mutex_);
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_SQLITE_STORE_H_
