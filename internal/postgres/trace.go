package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// tracer calls [Options.Trace] for the operations of the driver.
type tracer func(ctx context.Context, name, sql string) (context.Context, func(error))

var (
	_ pgx.QueryTracer = tracer(nil)
	_ pgx.BatchTracer = tracer(nil)
)

// endKey is the key of the function that ends an operation, in its context.
type endKey struct{}

func (t tracer) start(ctx context.Context, name, sql string) context.Context {
	ctx, end := t(ctx, name, sql)
	if end == nil {
		return ctx
	}
	return context.WithValue(ctx, endKey{}, end)
}

func end(ctx context.Context, err error) {
	if end, ok := ctx.Value(endKey{}).(func(error)); ok {
		end(err)
	}
}

func (t tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	name, _, _ := strings.Cut(data.SQL, " ")
	return t.start(ctx, name, data.SQL)
}

func (t tracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	end(ctx, data.Err)
}

func (t tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return t.start(ctx, "BATCH", "")
}

func (t tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (t tracer) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	end(ctx, data.Err)
}
