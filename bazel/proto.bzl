"""C++ for .proto files, made by the system's protoc and gRPC plug-in."""

def muster_cc_proto(name, srcs, grpc_srcs = [], deps = [], visibility = None):
    """A cc_library of the messages in srcs and, for those in grpc_srcs, a second one NAME_grpc with their services.

    Two libraries, because gRPC's headers are the slowest thing to compile: who only needs messages depends on NAME.
    """
    stems = [s[:-len(".proto")] for s in srcs]
    native.genrule(
        name = name + "_gen",
        srcs = srcs,
        outs = [s + ext for s in stems for ext in (".pb.h", ".pb.cc")],
        cmd = "protoc -I. --cpp_out=$(GENDIR) $(SRCS)",
    )
    native.cc_library(
        name = name,
        srcs = [s + ".pb.cc" for s in stems],
        hdrs = [s + ".pb.h" for s in stems],
        copts = ["-w"],
        deps = deps + ["@system//:protobuf"],
        visibility = visibility,
    )
    if not grpc_srcs:
        return
    grpc_stems = [s[:-len(".proto")] for s in grpc_srcs]
    native.genrule(
        name = name + "_grpc_gen",
        srcs = grpc_srcs,
        outs = [s + ext for s in grpc_stems for ext in (".grpc.pb.h", ".grpc.pb.cc")],
        cmd = "protoc -I. --grpc_out=$(GENDIR) --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin $(SRCS)",
    )
    native.cc_library(
        name = name + "_grpc",
        srcs = [s + ".grpc.pb.cc" for s in grpc_stems],
        hdrs = [s + ".grpc.pb.h" for s in grpc_stems],
        copts = ["-w"],
        deps = [":" + name, "@system//:grpc++"],
        visibility = visibility,
    )
